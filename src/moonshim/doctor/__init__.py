"""One tool round with every configured provider -> whether its key, address, model and dialect work."""
