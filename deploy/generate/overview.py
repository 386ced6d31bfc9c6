def overview_dashboard(): return {}
