//! Curves over two plain axes, as SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// How a curve is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Solid,
    /// What is not measured.
    Dashed,
    Points,
}

/// One curve.
pub struct Curve {
    label: String,
    points: Vec<(f64, f64)>,
    style: Style,
}

impl Curve {
    /// Measured.
    pub fn solid(label: String, points: impl Iterator<Item = (f64, f64)>) -> Curve {
        Curve { label, points: points.collect(), style: Style::Solid }
    }

    /// Not measured.
    pub fn dashed(label: String, points: impl Iterator<Item = (f64, f64)>) -> Curve {
        Curve { label, points: points.collect(), style: Style::Dashed }
    }

    /// Points that no line joins.
    pub fn points(label: String, points: impl Iterator<Item = (f64, f64)>) -> Curve {
        Curve { label, points: points.collect(), style: Style::Points }
    }
}

/// A chart, both of whose axes begin at 0.
pub struct Chart<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    pub curves: &'a [Curve],
}

impl Chart<'_> {
    /// Its text.
    pub fn svg(&self) -> Result<String> {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let right = points().map(|point| point.0).fold(1.0, f64::max);
        let top = points().map(|point| point.1).fold(1.0, f64::max) * 1.1;
        let mut text = String::new();
        {
            let drawn = |error: DrawingAreaErrorKind<_>| anyhow!("cannot draw: {error}");
            let area = SVGBackend::with_string(&mut text, (800, 500)).into_drawing_area();
            area.fill(&WHITE).map_err(drawn)?;
            let mut chart = ChartBuilder::on(&area)
                .caption(self.title, ("sans-serif", 18))
                .margin(12)
                .x_label_area_size(40)
                .y_label_area_size(60)
                .build_cartesian_2d(0.0..right, 0.0..top)
                .map_err(drawn)?;
            chart.configure_mesh().x_desc(self.x).y_desc(self.y).draw().map_err(drawn)?;
            for (index, curve) in self.curves.iter().enumerate() {
                let color = Palette99::pick(index).to_rgba();
                let points = curve.points.iter().copied();
                let series = match curve.style {
                    Style::Solid => chart
                        .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))
                        .map_err(drawn)?,
                    Style::Dashed => {
                        chart.draw_series(DashedLineSeries::new(points, 6, 4, color.stroke_width(1))).map_err(drawn)?
                    }
                    Style::Points => {
                        chart.draw_series(points.map(|point| Circle::new(point, 2, color.filled()))).map_err(drawn)?
                    }
                };
                series.label(&curve.label).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .border_style(BLACK)
                .background_style(WHITE.mix(0.8))
                .draw()
                .map_err(drawn)?;
            area.present().map_err(drawn)?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_all_its_curves() {
        let points = [(1.0, 1.0), (2.0, 1.5)];
        let curves = [
            Curve::dashed("by law".into(), points.into_iter()),
            Curve::solid("measured".into(), points.into_iter()),
            Curve::points("bills".into(), points.into_iter()),
        ];
        let text = Chart { title: "some title", x: "across", y: "up", curves: &curves }.svg().unwrap();
        for words in ["by law", "measured", "bills", "some title", "across", "up"] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }
}
