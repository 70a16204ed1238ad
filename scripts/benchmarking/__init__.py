"""What heedmap costs: `recording` and `editing`, both by way of `replay`."""
