"""Laws of our own machinery: tests, which are not shipped. Those of what a user can bring are in `purestep.properties`."""
