//! Links the monitor at the base of native components.

fn main() {
    pelago_link::component();
}
