"""capsule"""
