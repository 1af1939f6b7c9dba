"""Laws of the library's own machinery: tests that are not shipped. Laws for users' components are in `purestep.properties`."""
