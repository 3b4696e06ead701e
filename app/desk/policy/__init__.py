"""What legal does with rules: read, try, compare, publish and explain them."""
