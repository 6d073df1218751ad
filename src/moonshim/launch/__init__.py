"""A client's name -> the client, running against a gateway, with nothing of its user's settings changed."""
