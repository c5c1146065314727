//! One endpoint API over any fabric, chosen by name at run time.
