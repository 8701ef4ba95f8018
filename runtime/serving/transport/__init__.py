"""What all requests have in common: limits, access, HTTP, fields, errors."""
