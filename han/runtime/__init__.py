"""The runtime of one communicator: plans, engines, requests and reports of errors."""
