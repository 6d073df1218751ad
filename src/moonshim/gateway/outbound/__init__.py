"""A model's name -> the providers to ask, in which order, with which key and headers."""
