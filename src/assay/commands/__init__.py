"""The commands of `assay`, one file each; `assay.cli` assembles them."""
