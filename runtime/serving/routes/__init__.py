"""The routes of the server, one file per API. Each has ROUTES: method, path, name, handler."""
