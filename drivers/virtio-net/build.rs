//! Links the driver as a component.
fn main() {
    pelago_link::component();
}
