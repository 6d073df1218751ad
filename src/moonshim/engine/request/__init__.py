"""A client's request -> a request that its host accepts: the ordered steps are in `adapt`."""
