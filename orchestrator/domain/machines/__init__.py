"""Define what is known of machines: capacity, price, quota, disks, maintenance."""
