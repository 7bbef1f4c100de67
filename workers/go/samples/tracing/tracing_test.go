package tracing

import (
	"context"
	"os"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"admission-gateway.io/worker"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
)

func TestAPolicyContinuesTheTrace(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	pod := []byte(`{"object": {"metadata": {"labels": {"team": "a"}}}}`)
	for flags, count := range map[string]int{"-01": 1, "-00": 0} {
		review, err := worker.ParseReview(pod, worker.WithTraceparent("00-"+traceID+"-"+spanID+flags))
		if err != nil {
			t.Fatal(err)
		}
		recorder.Reset()
		if err := KnownTeam(context.Background(), review); err != nil {
			t.Fatal(err)
		}
		spans := recorder.Ended()
		if len(spans) != count {
			t.Fatalf("%s: %d spans", flags, len(spans))
		}
		for _, span := range spans {
			if span.SpanContext().TraceID().String() != traceID || span.Parent().SpanID().String() != spanID {
				t.Errorf("the span is %v below %v", span.SpanContext(), span.Parent())
			}
		}
	}
}

func TestTheReadmeHasTheLines(t *testing.T) {
	sample, err := os.ReadFile("tracing.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, lines, _ := strings.Cut(string(sample), "error {\n")
	lines, _, _ = strings.Cut(lines, "\treturn")
	if !strings.Contains(string(readme), strings.ReplaceAll("\n"+lines, "\n\t", "\n")) {
		t.Errorf("README.md lacks\n%s", lines)
	}
}
