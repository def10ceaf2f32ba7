"""Problems from packages that a user has installed: their modules and functions, written out as problems.

A package is read through its syntax trees and never imported. Only the written problem runs, in a cage.
"""
