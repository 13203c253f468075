"""Planning: compile the declared queries into plan versions, and distribute large plans over workers."""
