"""Client request -> a request that the host accepts. `adapt` lists the steps in order."""
