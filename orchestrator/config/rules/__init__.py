"""What makes a deployment file wrong although every value has the right type."""
