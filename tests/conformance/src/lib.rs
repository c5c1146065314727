//! One test per clause of the DAT contract, generic over the provider.
