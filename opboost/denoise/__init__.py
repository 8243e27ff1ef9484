"""Learning through the noise: the exact channel of a release, latent classes behind it, draws of the exact codes."""
