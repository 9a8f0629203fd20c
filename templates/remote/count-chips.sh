# Print what a TPU machine sees of its chips, with the standard library alone: Google's devices on PCI (docs/facts.md
# 4.1), device files, and how many of them can be opened.
run() { if sudo -n true 2>/dev/null; then sudo -n "$@"; else "$@"; fi; }
run python3 - <<'END'
import glob, os
def text(name):
    try:
        with open(name) as file:
            return file.read().strip()
    except OSError:
        return ""
vendors = [text(name) for name in glob.glob("/sys/bus/pci/devices/*/vendor")]
devices = glob.glob("/dev/accel[0-9]*") + glob.glob("/dev/vfio/[0-9]*")
opened = 0
for name in devices:
    try:
        os.close(os.open(name, os.O_RDWR))
        opened += 1
    except OSError:
        pass
print("chips=%d" % vendors.count("0x1ae0"))
print("devices=%d" % len(devices))
print("opened=%d" % opened)
libraries = glob.glob("/lib/libtpu*.so") + glob.glob("/usr/lib/libtpu*.so")
print("libtpu=%s" % ("yes" if libraries else "no"))
END
