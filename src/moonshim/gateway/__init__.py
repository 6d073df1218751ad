"""An HTTP gateway: requests of any client -> the engine -> any host, and back."""
