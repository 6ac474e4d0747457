//! Links the server as a component.
fn main() {
    pelago_link::component();
}
