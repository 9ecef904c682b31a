"""One command a file, in folders by subject; each is imported when it is called."""
