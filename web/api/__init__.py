"""What tenants call: one blueprint per noun."""
