"""The application object and what it hands out."""

from gantline.app.gantline import Gantline

__all__ = ["Gantline"]
