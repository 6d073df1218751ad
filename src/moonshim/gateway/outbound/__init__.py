"""A model's name -> the providers to call, in which order, with which key and headers."""
