"""derived"""
