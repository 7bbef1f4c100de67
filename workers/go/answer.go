package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"admission-gateway.io/worker/internal/tree"
	pb "admission-gateway.io/worker/internal/workerpb"
)

const (
	// maxMessageBytes is the limit in both directions, as in the gateway: a review has at most 7 MiB.
	maxMessageBytes = 8 * 1024 * 1024
	// maxResponseBytes leaves room for the fields of the verdict and the batch.
	maxResponseBytes = maxMessageBytes - 128
	// maxErrorBytes is the limit of an Error's text. In a unary answer it is percent-encoded, up to three times
	// as long, in the trailers, which gRPC limits to 8 KiB.
	maxErrorBytes = 2000
)

// outcome is the result of a call: a response or an error. Calls may share it, so it is immutable.
type outcome struct {
	response *pb.ReviewResponse
	err      *pb.Error
}

// status returns the status of a unary call with this error.
func (o outcome) status() error { return status.Error(codes.Code(o.err.Code), o.err.Message) }

// allowed is the most frequent outcome.
var allowed = outcome{response: &pb.ReviewResponse{Allowed: true}}

// exited is the outcome of a policy that does not return.
var exited = internalError("the policy ended its goroutine (runtime.Goexit)")

// errorOutcome returns an Error with its text cut to maxErrorBytes.
func errorOutcome(code codes.Code, text string) outcome {
	text = validText(text)
	if len(text) > maxErrorBytes {
		cut := maxErrorBytes - len("...")
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "..."
	}
	return outcome{err: &pb.Error{Code: int32(code), Message: text}}
}

func internalError(text string) outcome { return errorOutcome(codes.Internal, text) }

func malformedOutcome(err error) outcome { return errorOutcome(codes.InvalidArgument, err.Error()) }

func tooLate() outcome {
	return errorOutcome(codes.DeadlineExceeded, "the deadline passed before the policy answered")
}

// stoppedOutcome returns the outcome of a call whose context is done, if it is.
func stoppedOutcome(ctx context.Context) (outcome, bool) {
	switch deadline, ok := ctx.Deadline(); {
	case ok && !time.Now().Before(deadline):
		return tooLate(), true
	case ctx.Err() != nil:
		return errorOutcome(codes.Canceled, "the call was cancelled"), true
	}
	return outcome{}, false
}

// maxListed is how many policies an error lists; a worker may serve thousands.
const maxListed = 50

func unknownPolicy(name string, policies map[string]*policy) outcome {
	names := slices.Sorted(maps.Keys(policies))
	served := strings.Join(names[:min(len(names), maxListed)], ", ")
	switch more := len(names) - maxListed; {
	case served == "":
		served = "none"
	case more > 0:
		served = fmt.Sprintf("%s and %d more", served, more)
	}
	return errorOutcome(codes.NotFound, fmt.Sprintf(`policy "%s" is not served here; served are: %s`, name, served))
}

func denialIn(err error) (*Denial, bool) {
	var denial *Denial
	ok := errors.As(err, &denial)
	return denial, ok && denial != nil
}

func denied(review *Review, denial *Denial) outcome {
	code := denial.Code
	if code < 400 || code > 599 {
		code = 400
	}
	sent := &pb.Status{
		Code: int32(code), Reason: validText(string(denial.Reason)), Message: validText(denial.Message),
		RetryAfterSeconds: max(0, denial.RetryAfterSeconds), Name: validText(denial.Name),
		Group: validText(denial.Group), Kind: validText(denial.Kind), Uid: validText(string(denial.UID)),
	}
	for _, cause := range denial.Causes {
		sent.Causes = append(sent.Causes, &pb.StatusCause{
			Reason: validText(string(cause.Type)), Message: validText(cause.Message), Field: validText(cause.Field),
		})
	}
	return limited(&pb.ReviewResponse{
		Status: sent, Warnings: review.warnings, AuditAnnotations: review.annotations,
	})
}

func allowedWith(review *Review, operations []Operation) outcome {
	if len(operations) == 0 && len(review.warnings) == 0 && len(review.annotations) == 0 {
		return allowed
	}
	response := &pb.ReviewResponse{
		Allowed: true, Warnings: review.warnings, AuditAnnotations: review.annotations,
	}
	if len(operations) > 0 {
		review.payload.step(func() { response.Patch = tree.AppendPatch(nil, operations) })
	}
	return limited(response)
}

// limited returns the response, or a smaller outcome if it is too large.
func limited(response *pb.ReviewResponse) outcome {
	size := proto.Size(response)
	if size <= maxResponseBytes {
		return outcome{response: response}
	}
	if !response.Allowed {
		// A denial remains a denial.
		return outcome{response: &pb.ReviewResponse{Status: &pb.Status{
			Code:              response.Status.Code,
			Reason:            firstRunes(response.Status.Reason, 64),
			Message:           firstRunes(response.Status.Message, 4096),
			RetryAfterSeconds: response.Status.RetryAfterSeconds,
		}}}
	}
	return errorOutcome(codes.ResourceExhausted, fmt.Sprintf(
		"the answer has %d bytes (%d of them patch), more than %d", size, len(response.Patch), maxResponseBytes,
	))
}

func firstRunes(text string, count int) string {
	for at := range text {
		if count == 0 {
			return text[:at]
		}
		count--
	}
	return text
}

// validText returns text as valid UTF-8 for protobuf.
func validText(text string) string {
	return strings.ToValidUTF8(text, "?")
}
