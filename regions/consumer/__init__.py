"""The consumer role: takes references from the queue, claims them, sends, settles, and only then lets the message go."""
