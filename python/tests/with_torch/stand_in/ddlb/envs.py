"""Where processes meet, as DDLB's variables say."""
import os


def get_master_addr():
    return os.environ.get("DDLB_MASTER_ADDR", "localhost")


def get_master_port():
    return os.environ.get("DDLB_MASTER_PORT", "12345")
