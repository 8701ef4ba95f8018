"""What the server answers, one file per API. Each has ROUTES: method, path, name, handler."""
