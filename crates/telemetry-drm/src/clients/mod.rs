//! Who uses the cards: clients from `/proc/PID/fdinfo` and kfd.
