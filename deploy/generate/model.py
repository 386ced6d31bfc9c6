def model_dashboard(): return {}
