"""Schedules: how the work of a region is split over programs; one file each."""
