//! Links the program as a component.
fn main() {
    pelago_link::component();
}
