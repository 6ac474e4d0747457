//! Links the server at the base of native components.

fn main() {
    pelago_link::component();
}
