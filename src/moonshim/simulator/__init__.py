"""A Kimi API that runs anywhere: as strict as the real one, and able to misbehave in every way that hosts do."""
