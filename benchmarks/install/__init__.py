"""What an installation weighs, beside the packages that the product must have."""
