"""Problems of reducing lists, for the reasoning cache."""
