"""The user's configuration: settings with their origins, paths, and amounts as people write them."""
