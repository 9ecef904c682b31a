"""What model servers read: folders in their own layout, made of released artifacts."""
