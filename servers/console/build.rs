//! Links the console as a native component.

fn main() {
    pelago_link::component();
}
