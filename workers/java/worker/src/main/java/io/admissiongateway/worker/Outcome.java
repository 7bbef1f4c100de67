package io.admissiongateway.worker;

import admissiongateway.worker.v1.Worker;
import admissiongateway.worker.v1.Worker.ReviewResponse;
import com.google.protobuf.ByteString;
import com.google.protobuf.MessageLite;
import io.grpc.Status;
import java.util.Collection;
import java.util.Locale;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import tools.jackson.databind.node.ArrayNode;

/**
 * The result of a policy as the message for the gateway. The stream and the unary method send the same message.
 *
 * <p>Any exception other than a denial is an error, never an allowed response. No stack trace is sent.
 *
 * @param response the answer; null for an error
 * @param error why there is none; null for an answer
 */
record Outcome(ReviewResponse response, Worker.Error error) {
    /** Limit in both directions, as in the gateway: a review has up to 7 MiB, and gRPC's default is 4 MiB. */
    static final int MAX_MESSAGE_BYTES = 8 * 1024 * 1024;

    /** Leaves room for the fields of the verdict and the batch. */
    private static final int MAX_RESPONSE_BYTES = MAX_MESSAGE_BYTES - 128;

    private static final Outcome ALLOWED = answer(ReviewResponse.newBuilder().setAllowed(true).build());

    private static final Outcome ALLOWED_WITH_PARAMETERS =
            answer(ReviewResponse.newBuilder().setAllowed(true).setParametersApplied(true).build());

    static final Outcome TOO_LATE =
            error(Status.Code.DEADLINE_EXCEEDED, "the deadline passed before the policy answered");

    /** Returns the error of that code, its text cut to what trailers can carry. */
    static Outcome error(Status.Code code, String text) {
        return new Outcome(
                null, Worker.Error.newBuilder().setCode(code.value()).setMessage(Text.shorten(text)).build());
    }

    /** Returns the error of a call for an unknown policy. */
    static Outcome unknownPolicy(String name, Collection<String> policies) {
        String served = policies.stream().sorted().collect(Collectors.joining(", "));
        String text = "policy \"" + name + "\" is not served here; served are: " + (served.isEmpty() ? "none" : served);
        return error(Status.Code.NOT_FOUND, text);
    }

    /** Returns the outcome of a policy that returned: allow, with its patch. */
    static Outcome returned(Review review) {
        if (!review.hasMore()) {
            return ALLOWED;
        }
        ArrayNode changes = review.changes();
        if (changes.isEmpty() && review.ownWarnings().isEmpty() && review.ownAnnotations().isEmpty()) {
            return ALLOWED;
        }
        ReviewResponse.Builder response =
                ReviewResponse.newBuilder()
                        .setAllowed(true)
                        .addAllWarnings(review.ownWarnings())
                        .putAllAuditAnnotations(review.ownAnnotations());
        if (!changes.isEmpty()) {
            response.setPatch(ByteString.copyFrom(Json.MAPPER.writeValueAsBytes(changes)));
        }
        return limited(response.build());
    }

    /** Returns the outcome of a policy that threw: a denial, or an error. */
    static Outcome thrown(Review review, Throwable problem) {
        Denied denial = denialIn(problem);
        if (denial != null) {
            return limited(denied(review, denial));
        }
        if (problem instanceof MalformedPayload) {
            return error(Status.Code.INVALID_ARGUMENT, problem.getMessage());
        }
        return error(Status.Code.INTERNAL, describe(problem));
    }

    /** Whether it is to be logged: the worker's own trouble, rather than an answer or the gateway's. */
    boolean isFailure() {
        return error != null && error.getCode() == Status.Code.INTERNAL.value();
    }

    /** Returns the outcome of a call with parameters. */
    Outcome withParameters() {
        if (this == ALLOWED) {
            return ALLOWED_WITH_PARAMETERS;
        }
        return response == null ? this : answer(response.toBuilder().setParametersApplied(true).build());
    }

    /** The status of a call or stream that ends with this error. */
    Status status() {
        return Status.fromCodeValue(error.getCode()).withDescription(error.getMessage());
    }

    int size() {
        return (response != null ? response : (MessageLite) error).getSerializedSize();
    }

    private static Outcome answer(ReviewResponse response) {
        return new Outcome(response, null);
    }

    /** Returns the denial; also one that was thrown in another thread, whose result the policy asked for. */
    private static Denied denialIn(Throwable problem) {
        Throwable inner = problem;
        while (inner instanceof CompletionException || inner instanceof ExecutionException) {
            inner = inner.getCause();
        }
        return inner instanceof Denied denial ? denial : null;
    }

    /** Returns type and text. */
    static String describeFully(Throwable problem) {
        String text = textOf(problem);
        return text == null || text.isEmpty() ? name(problem.getClass()) : name(problem.getClass()) + ": " + text;
    }

    /** Returns the text, with the type if that adds information. */
    static String describe(Throwable problem) {
        Class<?> type = problem.getClass();
        String text = textOf(problem);
        if (text == null || text.isEmpty()) {
            return name(type);
        }
        boolean saysMore = type != Exception.class && type != RuntimeException.class;
        return saysMore ? name(type) + ": " + text : text;
    }

    /** Returns what it says; null also where even saying it goes wrong. */
    private static String textOf(Throwable problem) {
        try {
            return problem.getMessage();
        } catch (Throwable unreadable) { // the policy's own code again
            return null;
        }
    }

    private static String name(Class<?> type) {
        return type.getSimpleName().isEmpty() ? type.getName() : type.getSimpleName();
    }

    private static ReviewResponse denied(Review review, Denied denial) {
        Worker.Status.Builder status =
                Worker.Status.newBuilder()
                        .setCode(denial.code() >= 400 && denial.code() <= 599 ? denial.code() : 400)
                        .setReason(Text.clean(denial.reason()))
                        .setMessage(Text.clean(denial.getMessage()))
                        .setRetryAfterSeconds(Math.max(0, denial.retryAfterSeconds()))
                        .setName(Text.clean(denial.name()))
                        .setGroup(Text.clean(denial.group()))
                        .setKind(Text.clean(denial.kind()))
                        .setUid(Text.clean(denial.uid()));
        for (Cause cause : denial.causes()) {
            status.addCauses(
                    Worker.StatusCause.newBuilder()
                            .setReason(Text.clean(cause.reason()))
                            .setMessage(Text.clean(cause.message()))
                            .setField(Text.clean(cause.field())));
        }
        return ReviewResponse.newBuilder()
                .setStatus(status)
                .addAllWarnings(review.ownWarnings())
                .putAllAuditAnnotations(review.ownAnnotations())
                .build();
    }

    /** Returns the response; if it is too large, an error, or a denial with a shortened status. */
    private static Outcome limited(ReviewResponse response) {
        int size = response.getSerializedSize();
        if (size <= MAX_RESPONSE_BYTES) {
            return answer(response);
        }
        if (!response.getAllowed()) {
            Worker.Status status = response.getStatus();
            return answer(
                    ReviewResponse.newBuilder()
                            .setStatus(
                                    Worker.Status.newBuilder()
                                            .setCode(status.getCode())
                                            .setReason(Text.start(status.getReason(), 64))
                                            .setMessage(Text.start(status.getMessage(), 4096))
                                            .setRetryAfterSeconds(status.getRetryAfterSeconds()))
                            .build());
        }
        return error(
                Status.Code.RESOURCE_EXHAUSTED,
                String.format(
                        Locale.ROOT, // some others have digits of their own
                        "the answer has %d bytes (%d of them patch), more than %d",
                        size,
                        response.getPatch().size(),
                        MAX_RESPONSE_BYTES));
    }
}
